"""Keys and shapes of well-known models, written down as facts: what their state dicts hold, without their code."""

from __future__ import annotations

from ckptdoctor.rules.examples import T

Contents = dict[str, object]


def _linear(name: str, rows: int, columns: int) -> Contents:
    return {f"{name}.weight": T((rows, columns)), f"{name}.bias": T((rows,))}


def _norm(name: str, width: int) -> Contents:
    return {f"{name}.weight": T((width,)), f"{name}.bias": T((width,))}


def _batch_norm(name: str, width: int) -> Contents:
    found = _norm(name, width)
    found[f"{name}.running_mean"] = found[f"{name}.running_var"] = T((width,))
    return {**found, f"{name}.num_batches_tracked": T((), "int64")}


def resnet(depths: tuple[int, ...], *, bottleneck: bool, classes: int = 1000, channels: int = 3) -> Contents:
    """A ResNet as torchvision builds it."""
    found: Contents = {"conv1.weight": T((64, channels, 7, 7)), **_batch_norm("bn1", 64)}
    inputs, expansion = 64, 4 if bottleneck else 1
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            name = f"layer{stage + 1}.{index}"
            sides = [(inputs, width, 1), (width, width, 3), (width, 4 * width, 1)] if bottleneck else []
            for number, (a, b, kernel) in enumerate(sides or [(inputs, width, 3), (width, width, 3)], start=1):
                found[f"{name}.conv{number}.weight"] = T((b, a, kernel, kernel))
                found.update(_batch_norm(f"{name}.bn{number}", b))
            if index == 0 and inputs != expansion * width:
                found[f"{name}.downsample.0.weight"] = T((expansion * width, inputs, 1, 1))
                found.update(_batch_norm(f"{name}.downsample.1", expansion * width))
            inputs = expansion * width
    return {**found, **_linear("fc", classes, inputs)}


def resnet18(**options: int) -> Contents:
    """18 layers."""
    return resnet((2, 2, 2, 2), bottleneck=False, **options)


def resnet34() -> Contents:
    """34 layers: the same widths as with 18, and more blocks."""
    return resnet((3, 4, 6, 3), bottleneck=False)


def resnet50(**options: int) -> Contents:
    """50 layers, with bottlenecks."""
    return resnet((3, 4, 6, 3), bottleneck=True, **options)


def resnet101() -> Contents:
    """101 layers: the same widths as with 50, and more blocks in one stage."""
    return resnet((3, 4, 23, 3), bottleneck=True)


def vgg(plan: tuple[int, ...]) -> Contents:
    """A VGG as torchvision builds it: so many convolutions in each of five stages."""
    found: Contents = {}
    at, inputs = 0, 3
    for stage, depth in enumerate(plan):
        width = min(64 << stage, 512)
        for _ in range(depth):
            found[f"features.{at}.weight"] = T((width, inputs, 3, 3))
            found[f"features.{at}.bias"] = T((width,))
            at, inputs = at + 2, width
        at += 1
    for index, (rows, columns) in ((0, (4096, 25088)), (3, (4096, 4096)), (6, (1000, 4096))):
        found.update(_linear(f"classifier.{index}", rows, columns))
    return found


def bert(depth: int = 12, width: int = 768, vocabulary: int = 30522, positions: int = 512) -> Contents:
    """BertModel of transformers."""
    found: Contents = {
        "embeddings.word_embeddings.weight": T((vocabulary, width)),
        "embeddings.position_embeddings.weight": T((positions, width)),
        "embeddings.token_type_embeddings.weight": T((2, width)),
        **_norm("embeddings.LayerNorm", width),
    }
    for index in range(depth):
        name = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            found.update(_linear(f"{name}.attention.self.{part}", width, width))
        found.update(_linear(f"{name}.attention.output.dense", width, width))
        found.update(_norm(f"{name}.attention.output.LayerNorm", width))
        found.update(_linear(f"{name}.intermediate.dense", 4 * width, width))
        found.update(_linear(f"{name}.output.dense", width, 4 * width))
        found.update(_norm(f"{name}.output.LayerNorm", width))
    return {**found, **_linear("pooler.dense", width, width)}


def gpt2(
    depth: int = 12, width: int = 768, vocabulary: int = 50257, positions: int = 1024, *, conv1d: bool = True
) -> Contents:
    """GPT-2: transformers keeps its matrices as inputs × outputs (Conv1D), others as outputs × inputs."""
    found: Contents = {
        "transformer.wte.weight": T((vocabulary, width)),
        "transformer.wpe.weight": T((positions, width)),
    }
    for index in range(depth):
        name = f"transformer.h.{index}"
        found.update(_norm(f"{name}.ln_1", width))
        layers = (("attn.c_attn", 3, 1), ("attn.c_proj", 1, 1), ("mlp.c_fc", 4, 1), ("mlp.c_proj", 1, 4))
        for layer, rows, columns in layers:
            shape = (rows * width, columns * width)
            found[f"{name}.{layer}.weight"] = T(shape[::-1] if conv1d else shape)
            found[f"{name}.{layer}.bias"] = T(shape[:1])
        found.update(_norm(f"{name}.ln_2", width))
    return {**found, **_norm("transformer.ln_f", width), "lm_head.weight": T((vocabulary, width))}


def llama(
    depth: int = 32,
    width: int = 4096,
    inner: int = 11008,
    vocabulary: int = 32000,
    *,
    keys: int | None = None,
    qkv: bool = False,
    gate_up: bool = False,
) -> Contents:
    """LlamaForCausalLM of transformers; ``qkv`` and ``gate_up`` fuse projections, as Phi-3 does."""
    keys = width if keys is None else keys
    found: Contents = {"model.embed_tokens.weight": T((vocabulary, width))}
    for index in range(depth):
        name = f"model.layers.{index}"
        if qkv:
            found[f"{name}.self_attn.qkv_proj.weight"] = T((width + 2 * keys, width))
        else:
            for part, rows in (("q_proj", width), ("k_proj", keys), ("v_proj", keys)):
                found[f"{name}.self_attn.{part}.weight"] = T((rows, width))
        found[f"{name}.self_attn.o_proj.weight"] = T((width, width))
        if gate_up:
            found[f"{name}.mlp.gate_up_proj.weight"] = T((2 * inner, width))
        else:
            found[f"{name}.mlp.gate_proj.weight"] = found[f"{name}.mlp.up_proj.weight"] = T((inner, width))
        found[f"{name}.mlp.down_proj.weight"] = T((width, inner))
        found[f"{name}.input_layernorm.weight"] = found[f"{name}.post_attention_layernorm.weight"] = T((width,))
    return {**found, "model.norm.weight": T((width,)), "lm_head.weight": T((vocabulary, width))}


def llama_rank(ranks: int, depth: int = 40, width: int = 5120, inner: int = 13824) -> Contents:
    """One ``consolidated.0N.pth`` of Llama as Meta saved it; the whole model for one rank."""
    found: Contents = {"tok_embeddings.weight": T((32000, width // ranks)), "norm.weight": T((width,))}
    found["output.weight"] = T((32000 // ranks, width))
    for index in range(depth):
        name = f"layers.{index}"
        for part in ("wq", "wk", "wv"):
            found[f"{name}.attention.{part}.weight"] = T((width // ranks, width))
        found[f"{name}.attention.wo.weight"] = T((width, width // ranks))
        found[f"{name}.feed_forward.w1.weight"] = found[f"{name}.feed_forward.w3.weight"] = T((inner // ranks, width))
        found[f"{name}.feed_forward.w2.weight"] = T((width, inner // ranks))
        found[f"{name}.attention_norm.weight"] = found[f"{name}.ffn_norm.weight"] = T((width,))
    return {**found, "rope.freqs": T((64,))}


def mixtral(depth: int = 2, *, stacked: bool) -> Contents:
    """The mixtures of MixtralForCausalLM: stacked since version 5 of transformers, apart before."""
    found = llama(depth, 64, 160, 320)
    for index in range(depth):
        name = f"model.layers.{index}"
        for part in ("gate_proj", "up_proj", "down_proj"):
            del found[f"{name}.mlp.{part}.weight"]
        if stacked:
            found[f"{name}.mlp.experts.gate_up_proj"] = T((8, 320, 64))
            found[f"{name}.mlp.experts.down_proj"] = T((8, 64, 160))
        else:
            for expert in range(8):
                for part, shape in (("w1", (160, 64)), ("w2", (64, 160)), ("w3", (160, 64))):
                    found[f"{name}.block_sparse_moe.experts.{expert}.{part}.weight"] = T(shape)
    return found


def vit(
    depth: int = 12, width: int = 768, patches: int = 196, patch: int = 16, classes: int = 1000, channels: int = 3
) -> Contents:
    """A vision transformer as timm builds it."""
    found: Contents = {
        "cls_token": T((1, 1, width)),
        "pos_embed": T((1, patches + 1, width)),
        "patch_embed.proj.weight": T((width, channels, patch, patch)),
        "patch_embed.proj.bias": T((width,)),
    }
    for index in range(depth):
        name = f"blocks.{index}"
        found.update(_norm(f"{name}.norm1", width))
        found.update(_linear(f"{name}.attn.qkv", 3 * width, width))
        found.update(_linear(f"{name}.attn.proj", width, width))
        found.update(_norm(f"{name}.norm2", width))
        found.update(_linear(f"{name}.mlp.fc1", 4 * width, width))
        found.update(_linear(f"{name}.mlp.fc2", width, 4 * width))
    return {**found, **_norm("norm", width), **_linear("head", classes, width)}


def swin(window: int = 7, width: int = 96) -> Contents:
    """The first stage of a Swin transformer, as the original saves it."""
    found: Contents = {"patch_embed.proj.weight": T((width, 3, 4, 4)), "patch_embed.proj.bias": T((width,))}
    for index in range(2):
        name = f"layers.0.blocks.{index}"
        found.update(_norm(f"{name}.norm1", width))
        found[f"{name}.attn.relative_position_bias_table"] = T(((2 * window - 1) ** 2, 3))
        found[f"{name}.attn.relative_position_index"] = T((window**2, window**2), "int64")
        found.update(_linear(f"{name}.attn.qkv", 3 * width, width))
        found.update(_linear(f"{name}.mlp.fc1", 4 * width, width))
        found.update(_linear(f"{name}.mlp.fc2", width, 4 * width))
    return {**found, **_linear("head", 1000, width)}


SIZES = {
    "resnet18": resnet18(),
    "resnet34": resnet34(),
    "resnet50": resnet50(),
    "resnet101": resnet101(),
    "vgg11": vgg((1, 1, 2, 2, 2)),
    "vgg16": vgg((2, 2, 3, 3, 3)),
    "BERT base": bert(),
    "BERT large": bert(24, 1024),
    "GPT-2": gpt2(),
    "GPT-2 medium": gpt2(24, 1024),
    "GPT-2 XL": gpt2(48, 1600),
    "Llama 7B": llama(),
    "Llama 13B": llama(40, 5120, 13824),
    "Llama 70B": llama(80, 8192, 28672, keys=1024),
    "Llama 3 8B or Mistral 7B": llama(32, 4096, 14336, 128256, keys=1024),
    "ViT-Ti": vit(width=192),
    "ViT-B": vit(),
    "ViT-L": vit(24, 1024),
}
FAMILIES = ("resnet", "vgg", "BERT", "GPT-2", "Llama", "ViT")


def family(name: str) -> str:
    """The family that a model of ``SIZES`` belongs to."""
    return next(each for each in FAMILIES if name.startswith(each))
