"""Adapters (LoRA and its kin) that do not find the layers they are for, in PEFT, diffusers and user interfaces."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, Message, Way, Weight

_BASE = Way("see which base model and which layers the adapter is for", "ckptdoctor check FILE")

MESSAGES = (
    Message(
        "L901",
        ("Found missing adapter keys while loading the checkpoint",),
        "the adapter's file has none of these keys, so these layers stay as they were initialised: its keys carry the"
        " adapter's name or begin at another level, or it was made for another base model",
        (CHECK,),
        also=("L902", "L903", "L909"),
    ),
    Message(
        "L902",
        ("led to unexpected keys not found in the model:", "led to unexpected keys found in the model:"),
        "the adapter has keys that the model does not: they begin at another level, or it was made for another model."
        " What does not match has no effect",
        (_BASE,),
        near=("adapter", "LoRA", "lora"),
        also=("L905", "L909", "L901"),
    ),
    Message(
        "L902",
        ("led to missing keys in the model:",),
        "the adapter lacks keys for layers that the model adapts: its keys begin at another level, or it was made with"
        " other target modules",
        (_BASE,),
        near=("adapter", "LoRA", "lora"),
        also=("L901", "L909"),
    ),
    Message(
        "L909",
        ("not found in the base model. Please check the target modules",),
        "the adapter is for layers that this base model does not have: it was made for another one",
        (_BASE,),
        also=("L902", "L908"),
    ),
    Message(
        "",
        ("Can't find 'adapter_config.json' at",),
        "PEFT reads a folder with adapter_config.json and adapter_model.safetensors, and found no configuration there:"
        " the path is another, the download is not complete, or the file is no adapter of PEFT's. ckptdoctor cannot"
        " write the configuration; what the file is, is told by",
        (CHECK,),
    ),
    Message(
        "L905",
        ("Invalid LoRA checkpoint. Make sure all LoRA param names contain",),
        "the file has keys that are no LoRA's: it is a whole model, or an adapter in the layout of another program",
        (CHECK,),
        also=("L906", "L902"),
    ),
    Message(
        "L902",
        ("No LoRA keys associated to",),
        "none of the adapter's keys begin as diffusers expects for {part}: it adapts another part of the pipeline, or"
        " its keys lack the prefix",
        (_BASE,),
        then=r"(?P<part>\w{1,200}?)foundwiththe",
        also=("L905", "L909"),
    ),
    Message(
        "L905",
        ("lora key not loaded",),  # comfy/lora.py; before February 2024 printed without a colon
        "ComfyUI knows no layer called {key} and leaves it out: the adapter is in a layout that ComfyUI does not read,"
        " or for another base model",
        (_BASE,),
        then=r":?(?P<key>[\w.\-/]{1,300}?)(?=lorakeynotloaded|$|[^\w.\-/])",
        also=("L909", "L902"),
    ),
    Message(
        "L905",
        (
            "Failed to match keys when loading Lora",
            "Failed to match keys when loading Lyco",
            "Failed to match keys when loading network",
        ),
        "the web UI knows no layers of these names and leaves them out: the adapter is in a layout that it"
        " does not read,"
        " or for another base model",
        (_BASE,),
        also=("L909", "L902"),
    ),
    Message(
        # diffusers 0.30 to 0.35, loaders/lora_conversion_utils.py _convert_kohya_flux_lora_to_diffusers
        "L905",
        ("Incompatible keys detected:",),
        "the adapter has keys such as {key}, which diffusers' converter does not know: it was written by a program"
        " whose layout is not converted",
        (_BASE,),
        then=r"(?P<key>lora_[\w.\-/]{1,300})",
    ),
    Message(
        # AUTOMATIC1111 stable-diffusion-webui 1.5 to 1.10, extensions-builtin/Lora/networks.py
        "L905",
        ("that would accept those keys:",),
        "the web UI knows no kind of adapter with keys such as {key}: the file is in the layout of another program",
        (_BASE,),
        then=r"(?P<key>[\w.\-/]{1,300})",
        near=("Could not find a module type",),
    ),
    Message(
        "L905",
        ("Bad Lora layer name:",),
        "the file is an adapter in another layout than kohya's (lora_up.weight, lora_down.weight, alpha)",
        (CHECK,),
    ),
    Message(
        "L909",
        ("ERROR lora",),
        "the adapter's matrices do not have the sizes of this model's layers: it was made for another base model",
        (_BASE,),
        then=r".{1,300}?shape'\[[\d,]{1,40}\]'isinvalid",
        also=("L905",),
    ),
    Message(
        "S511",
        (
            "lora_B.default.weight: copying a param with shape torch.Size([0])",
            "lora_A.default.weight: copying a param with shape torch.Size([0])",
        ),
        "the adapter's tensors are empty: DeepSpeed ZeRO-3 keeps the parameters elsewhere, and they were saved without"
        " being collected. No command brings them back; save again with stage3_gather_16bit_weights_on_model_save",
        (CHECK,),
        weight=Weight.CAUSE,
        also=("L903",),
    ),
)
