"""Unit groups of networks that mix tokens: attention and mixers."""

from collections.abc import Callable

from tests.graph.expected_notation import G, Place, rows, w, wb

CHANNELS, TOKENS = [f"blocks.{i}.channel_fc" for i in (0, 1)], [f"blocks.{i}.token_fc" for i in (0, 1)]
MIXER = [
    G(
        10,
        wb("patches", *(f"{fc}2" for fc in CHANNELS)),
        w("head", *(f"{fc}1" for fc in CHANNELS)),
        wb("norm", *(f"blocks.{i}.norm{j}" for i in (0, 1) for j in (1, 2))),
        kind="stream",
    ),
    # The first token layer reads raw positions, which are no units; from then on positions are also written.
    G(
        9,
        wb(*(f"{fc}2" for fc in TOKENS)),
        w("blocks.1.token_fc1"),
        kind="stream",
        at={
            ("incoming", "blocks.0.token_fc2.weight"): Place((9, 7), (0,), rows(9)),
            ("incoming", "blocks.1.token_fc2.weight"): Place((9, 7), (0,), rows(9)),
            ("outgoing", "blocks.1.token_fc1.weight"): Place((7, 9), (1,), rows(9)),
        },
    ),
    *(G(7, wb(f"{fc}1"), w(f"{fc}2")) for fc in TOKENS),
    *(G(13, wb(f"{fc}1"), w(f"{fc}2")) for fc in CHANNELS),
    G(3, wb("head"), kind="output"),
]


def fused(weight: str, bias: str, out: str, transposed: bool = False) -> list[G]:
    """Score and value groups of 12 units whose q, k and v are thirds of one tensor; `transposed`: in x out."""
    view, dims = ((12, 36), (1,)) if transposed else ((36, 12), (0,))
    out_view, out_dims = ((12, 12), (0,)) if transposed else ((12, 12), (1,))
    q, k, v = (Place(view, dims, rows(12, first)) for first in (0, 12, 24))
    q_bias, k_bias, v_bias = (Place((36,), (0,), rows(12, first)) for first in (0, 12, 24))
    return [
        G(
            12,
            {weight, bias},
            {weight, bias},
            kind="score",
            at={
                ("incoming", weight): q,
                ("incoming", bias): q_bias,
                ("outgoing", weight): k,
                ("outgoing", bias): k_bias,
            },
        ),
        G(
            12,
            {weight, bias},
            {out},
            at={
                ("incoming", weight): v,
                ("incoming", bias): v_bias,
                ("outgoing", out): Place(out_view, out_dims, rows(12)),
            },
        ),
    ]


def vit(projections: set[str], out: str, attention: Callable[[str], list[G]]) -> list[G]:
    """`projections` and `out` are names below a block's attention; `attention` gives its score and value groups."""
    blocks = ["blocks.0", "blocks.1"]
    stream = G(
        12,
        wb("patches", *(f"{b}.attention.{out}" for b in blocks), *(f"{b}.mlp.2" for b in blocks))
        | {"cls_token", "positions"},
        w("head", *(f"{b}.mlp.0" for b in blocks)) | {f"{b}.attention.{p}" for b in blocks for p in projections},
        wb("norm", *(f"{b}.norm{i}" for b in blocks for i in (1, 2))),
        kind="stream",
    )
    inner = [g for b in blocks for g in [*attention(f"{b}.attention"), G(20, wb(f"{b}.mlp.0"), w(f"{b}.mlp.2"))]]
    return [stream, *inner, G(7, wb("head"), kind="output")]


VIT_SEPARATE = vit(
    w("q", "k", "v"),
    "out",
    lambda a: [G(12, wb(f"{a}.q"), wb(f"{a}.k"), kind="score"), G(12, wb(f"{a}.v"), w(f"{a}.out"))],
)
VIT_FUSED = vit(w("qkv"), "out", lambda a: fused(f"{a}.qkv.weight", f"{a}.qkv.bias", f"{a}.out.weight"))
VIT_MHA = vit(
    {"mha.in_proj_weight"},
    "mha.out_proj",
    lambda a: fused(f"{a}.mha.in_proj_weight", f"{a}.mha.in_proj_bias", f"{a}.mha.out_proj.weight"),
)

LAYERS = ["encoder.layers.0", "encoder.layers.1"]
TRANSFORMER_ENCODER = [
    G(
        12,
        wb("embed", *(f"{layer}.{name}" for layer in LAYERS for name in ("self_attn.out_proj", "linear2"))),
        w("head", *(f"{layer}.linear1" for layer in LAYERS))
        | {f"{layer}.self_attn.in_proj_weight" for layer in LAYERS},
        wb(*(f"{layer}.norm{i}" for layer in LAYERS for i in (1, 2))),
        kind="stream",
    ),
    *(
        group
        for layer in LAYERS
        for group in fused(
            f"{layer}.self_attn.in_proj_weight", f"{layer}.self_attn.in_proj_bias", f"{layer}.self_attn.out_proj.weight"
        )
    ),
    *(G(20, wb(f"{layer}.linear1"), w(f"{layer}.linear2")) for layer in LAYERS),
    G(7, wb("head"), kind="output"),
]


def gpt(prefix: str, transposed: bool) -> list[G]:
    """The token embedding writes the stream (its columns) and, tied to the head, reads it and writes the logits."""
    blocks = [f"{prefix}h.{i}" for i in (0, 1)]
    embedding = f"{prefix}wte.weight"
    stream = G(
        12,
        {embedding, f"{prefix}wpe.weight"} | wb(*(f"{b}.{part}.c_proj" for b in blocks for part in ("attn", "mlp"))),
        {embedding} | w(*(f"{b}.{part}" for b in blocks for part in ("attn.c_attn", "mlp.c_fc"))),
        wb(f"{prefix}ln_f", *(f"{b}.ln_{i}" for b in blocks for i in (1, 2))),
        kind="stream",
        at={
            ("incoming", embedding): Place((17, 12), (1,), rows(12)),
            ("incoming", f"{prefix}wpe.weight"): Place((8, 12), (1,), rows(12)),
            ("outgoing", embedding): Place((17, 12), (1,), rows(12)),
            ("outgoing", f"{blocks[0]}.attn.c_attn.weight"): Place(
                (12, 36) if transposed else (36, 12), (0,) if transposed else (1,), rows(12)
            ),
        },
    )
    logits = G(17, {embedding}, kind="output", at={("incoming", embedding): Place((17, 12), (0,), rows(17))})
    inner = []
    for b in blocks:
        inner += fused(f"{b}.attn.c_attn.weight", f"{b}.attn.c_attn.bias", f"{b}.attn.c_proj.weight", transposed)
        inner.append(G(20, wb(f"{b}.mlp.c_fc"), w(f"{b}.mlp.c_proj")))
    return [stream, *inner, logits]


def llama_block(block: str) -> list[G]:
    """Heads have 6 dimensions; rotary positions tie d and d + 3; query heads 2j and 2j + 1 use key-value head j."""
    attention, mlp = f"{block}.self_attn", f"{block}.mlp"
    queries = [[(2 * j + r) * 6 + half + d for r in (0, 1) for half in (0, 3)] for j in (0, 1) for d in range(3)]
    keys = [[j * 6 + half + d for half in (0, 3)] for j in (0, 1) for d in range(3)]
    columns = [[(2 * j + r) * 6 + d for r in (0, 1)] for j in (0, 1) for d in range(6)]
    return [
        G(
            6,
            w(f"{attention}.q_proj"),
            w(f"{attention}.k_proj"),
            kind="score",
            at={
                ("incoming", f"{attention}.q_proj.weight"): Place((24, 24), (0,), queries),
                ("outgoing", f"{attention}.k_proj.weight"): Place((12, 24), (0,), keys),
            },
        ),
        G(
            12,
            w(f"{attention}.v_proj"),
            w(f"{attention}.o_proj"),
            at={
                ("incoming", f"{attention}.v_proj.weight"): Place((12, 24), (0,), rows(12)),
                ("outgoing", f"{attention}.o_proj.weight"): Place((24, 24), (1,), columns),
            },
        ),
        G(20, w(f"{mlp}.gate_proj", f"{mlp}.up_proj"), w(f"{mlp}.down_proj"), kind="gated"),
    ]


BLOCKS = ["model.layers.0", "model.layers.1"]
READERS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"]
LLAMA = [
    G(
        24,
        w("model.embed_tokens", *(f"{b}.{name}" for b in BLOCKS for name in ("self_attn.o_proj", "mlp.down_proj"))),
        w("lm_head", *(f"{b}.{name}" for b in BLOCKS for name in READERS)),
        w("model.norm", *(f"{b}.{name}_layernorm" for b in BLOCKS for name in ("input", "post_attention"))),
        kind="stream",
    ),
    *(group for b in BLOCKS for group in llama_block(b)),
    G(17, w("lm_head"), kind="output"),
]
