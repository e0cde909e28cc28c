from papers.fire.cost import ratios


def test_ratios_of_one_network():
    rows = ratios("vgg16:width=4,hidden=8", size=32, classes=5, images=256, repeats=2)
    assert [(row["condition"], row["method"], row["seed"]) for row in rows] == [
        (condition, method, seed)
        for seed in range(2)
        for condition, method in (("time over S&P", "FIRE"), ("time over S&P", "DASH"), ("time over FIRE", "DASH"))
    ]
    assert all(row["ratio"] > 0 for row in rows)
