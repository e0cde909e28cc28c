const specs = JSON.parse(document.getElementById('specs').textContent);
Promise.allSettled(specs.map((spec, n) => window.vegaEmbed('#chart-' + n, spec, {actions: false, renderer: 'svg'})))
  .then(all => {
    for (const one of all) if (one.status === 'rejected') window.problems.push(String(one.reason));
    mark(all.filter(one => one.status === 'fulfilled').length);
  });
