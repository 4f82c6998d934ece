"""Messages in the words of versions that are not installed, each with its rule."""

from __future__ import annotations

MISSING = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: {}. \n"
    "\tUnexpected key(s) in state_dict: {}. "
)


def keys(*names):
    """Keys as torch quotes them."""
    return ", ".join(f'"{name}"' for name in names)


def both(missing, unexpected):
    """An error with both lists."""
    return MISSING.format(keys(*missing), keys(*unexpected))


def size(key, here, there):
    """An error with one shape."""
    return (
        f"RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for {key}: copying a param with shape"
        f" torch.Size({here}) from checkpoint, the shape in current model is torch.Size({there})."
    )


OPTIMIZER = "File \"/site-packages/torch/optim/{}.py\", line 9, in step\nKeyError: '{}'"
WORDINGS = [
    *[
        (OPTIMIZER.format(module, key), "O753")
        for module, key in (
            ("adam", "step"),
            ("adamax", "exp_inf"),
            ("rmsprop", "square_avg"),
            ("adagrad", "sum"),
            ("adam", "exp_avg_sq"),
            ("nadam", "mu_product"),
            ("adadelta", "rho"),
        )
    ],
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half", "T551"),
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float", "T551"),
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Float8_e4m3fn", "T551"),
    ("RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::Half", "T551"),
    ("    return F.embedding(\nIndexError: index out of range in self", "M979"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/out/__0_0.distcp'", "X809"),
    (
        "UserWarning: for conv1.weight: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
        "current model, which is a no-op. (Did you mean to pass `assign=True`",
        "",
    ),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "F001"),
    ("_pickle.UnpicklingError: invalid load key, '<'.", "F002"),
    ("_pickle.UnpicklingError: invalid load key, '{'.", "F003"),
    ("_pickle.UnpicklingError: invalid load key, 'E'.", "F003"),
    ("_pickle.UnpicklingError: invalid load key, '\\x1f'.", "C102"),
    ("_pickle.UnpicklingError: invalid load key, 'B'.", "C102"),
    ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "C101"),
    ("UnpicklingError: could not find MARK", "C101"),
    ("Weights only load failed. ... Unsupported operand 118", "F001"),
    ("Weights only load failed. ... Unsupported operand 60", "F002"),
    ("Unsupported operand 31", "C102"),
    ("Unsupported operand 123", "F003"),
    ("Unsupported operand 147", "C101"),
    ("Unsupported operand 149", "C104"),
    ("Unsupported operand 200", "C101"),
    ("EOFError", "F004"),
    ("EOFError: Ran out of input", "F004"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "F005"),
    ("PytorchStreamReader failed reading file data/3: invalid header or archive is corrupted", "F011"),
    ("RuntimeError: unexpected EOF, expected 1234 more bytes. The file might be corrupted.", "F006"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "F001"),
    ("SafetensorError: Error while deserializing header: header too large", "F001"),
    ("SafetensorError: Error while deserializing header: HeaderTooSmall", "F004"),
    ("SafetensorError: Error while deserializing header: InvalidHeaderLength", "F007"),
    ("SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "F007"),
    ("SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered", "F007"),
    ("SafetensorError: Error while deserializing header: InvalidHeaderDeserialization", "C110"),
    ("Error while deserializing header: invalid JSON in header: expected value at line 1 column 1", "C110"),
    ("Error while deserializing header: invalid offset for tensor `a`", "C111"),
    ("unknown variant `F8_E8M0`, expected one of `BOOL`, `U8`", "T559"),
    ("Cannot use ``weights_only=True`` with files saved in the legacy .tar format.", "F010"),
    ("KeyError: \"filename 'storages' not found\"", "F010"),
    ("RuntimeError: Invalid magic number; corrupt file?", "C104"),
    ("RuntimeError: file in archive is not in a subdirectory: model.pth", "C102"),
    (
        "Attempted to read a PyTorch file with version 3, but the maximum supported version for reading is 2. Your"
        " PyTorch installation may be too old.",
        "C106",
    ),
    ("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``.", "C107"),
    ("PytorchStreamReader failed locating file constants.pkl: file not found", "C108"),
    ("RuntimeError: [enforce fail at inline_container.cc:222] . file not found: archive/constants.pkl", "C108"),
    ("Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default.", "P201"),
    ("Unsupported global: GLOBAL getattr was not an allowed global by default.", "P206"),
    ("Unsupported global: GLOBAL numpy.core.multiarray.scalar was not an allowed global by default.", "P202"),
    ("Unsupported global: GLOBAL pathlib.PosixPath was not an allowed global by default.", "P203"),
    ("Unsupported global: GLOBAL models.yolo.Model was not an allowed global by default.", "P204"),
    ("Unsupported global: GLOBAL torch._utils._rebuild_xla_tensor was not an allowed global by default.", "D605"),
    ("Trying to load unsupported GLOBAL posix.system whose module posix is blocked.", "P206"),
    ("Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will likely", "P201"),
    ("ModuleNotFoundError: No module named 'numpy._core'", "P202"),
    ("NotImplementedError: cannot instantiate 'PosixPath' on your system", "P203"),
    ("No module named 'pathlib._local'", "P203"),
    ("AttributeError: Can't get attribute 'Net' on <module '__main__' from 'eval.py'>", "P204"),
    ("AttributeError: Can't get attribute '_rebuild_parameter_v9' on <module 'torch._utils'>", "P209"),
    ("ModuleNotFoundError: No module named 'models'", "P204"),
    ("ModuleNotFoundError: No module named 'models.yolo'", "P204"),
    ("ModuleNotFoundError: No module named 'omegaconf'", "P210"),
    ("UnicodeDecodeError: 'ascii' codec can't decode byte 0x8c in position 16: ordinal not in range(128)", "P208"),
    ("ValueError: unsupported pickle protocol: 5", "P211"),
    (
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you"
        " are running on a CPU-only machine, please use torch.load with map_location='cpu'",
        "D601",
    ),
    ("Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.", "D602"),
    ("don't know how to restore data location of torch.FloatStorage (tagged with xla:0)", "D604"),
    ("RuntimeError: Storage device not recognized: mps", "D604"),
    ("The HPU device module is not registered. If you are running on a CPU-only machine, please use", "D604"),
    ("Attempting to deserialize object on a XPU device but torch.xpu.is_available() is False.", "D604"),
    ("TypeError: RNG state must be a torch.ByteTensor", "D607"),
    (
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "O751",
    ),
    (
        'File "train.py", line 3, in step\n  optimizer.step()\nRuntimeError: The size of tensor a (2048) must match the'
        " size of tensor b (7) at non-singleton dimension 0",
        "O752",
    ),
    ("KeyError: 'betas'", "O753"),
    ("KeyError: 'optimizer_states'", "O754"),
    ("KeyError: 'lr_lambdas'", "O758"),
    ("KeyError: 'state_dict'", "W301"),
    ("Some tensors share memory, this will lead to duplicate memory on disk and potential differences", "A701"),
    ("You are trying to save a non contiguous tensor: `a.b` which is not allowed.", "A707"),
    (
        "  if metadata.get('format') not in ['pt', 'tf']:\nAttributeError: 'NoneType' object has no attribute 'get'",
        "M971",
    ),
    ('Need to initialize default process group using "init_process_group" before loading ShardedTensor', "X811"),
    ("``torch.distributed.tensor`` must be imported to load DTensors", "X810"),
    ("AssertionError: Loading a checkpoint for MP=2 but world size is 1", "X802"),
    (
        "OSError: Unable to load weights from pytorch checkpoint file for 'a.bin' at 'a.bin'. If you tried to load",
        "F014",
    ),
    ("You seem to have cloned a repository without having git-lfs installed.", "F001"),
    ("[Errno 2] No such file or directory: 'out/model-00002-of-00005.safetensors'", "X801"),
    ("[Errno 2] No such file or directory: 'best.pth'", ""),
    (both(["a.weight"], ["module.a.weight"]), "N401"),
    (both(["module.a.weight"], ["a.weight"]), "N402"),
    (both(["a.weight"], ["_orig_mod.a.weight"]), "N404"),
    (both(["a.weight"], ["_fsdp_wrapped_module.a.weight"]), "N405"),
    (both(["a.weight"], ["_flat_param"]), "N406"),
    (both(["a.weight"], ["_checkpoint_wrapped_module.a.weight"]), "N407"),
    (both(["a.weight"], ["model.a.weight"]), "N409"),
    (both(["bert.a.weight"], ["a.weight"]), "N410"),
    (both(["a.weight"], ["module.a.weight", "n_averaged"]), "N411"),
    (both(["a.parametrizations.weight.original0"], ["a.weight_g"]), "N412"),
    (both(["a.weight_g"], ["a.parametrizations.weight.original0"]), "N412"),
    (both(["a.weight_orig", "a.weight_u"], ["a.parametrizations.weight.original"]), "N413"),
    (both(["a.LayerNorm.weight"], ["a.LayerNorm.gamma"]), "N414"),
    ('Missing key(s) in state_dict: "bn.num_batches_tracked". ', "N416"),
    ('Unexpected key(s) in state_dict: "bn.num_batches_tracked". ', "N417"),
    (
        'Unexpected running stats buffer(s) "a.1.running_mean" and "a.1.running_var" for InstanceNorm2d with'
        " track_running_stats=False.",
        "N418",
    ),
    ('Unexpected key(s) in state_dict: "bert.embeddings.position_ids". ', "N419"),
    ('Unexpected key(s) in state_dict: "total_ops", "total_params", "a.total_ops". ', "N420"),
    ('Missing key(s) in state_dict: "a._extra_state". ', "N421"),
    ('Unexpected key(s) in state_dict: "criterion.weight". ', "N422"),
    ('Unexpected key(s) in state_dict: "epoch", "global_step", "state_dict", "optimizer_states". ', "W301"),
    ('Unexpected key(s) in state_dict: "state", "param_groups". ', "W303"),
    ('Unexpected key(s) in state_dict: "a.weight.absmax", "a.weight.quant_map". ', "Q951"),
    ('Unexpected key(s) in state_dict: "a.qweight", "a.qzeros". ', "Q953"),
    ('Unexpected key(s) in state_dict: "a.q.base_layer.weight", "a.q.lora_A.default.weight". ', "L906"),
    (both(["a.q_proj.weight"], ["a.qkv.weight"]), "S507"),
    (both(["a.weight"], ["b.kernel"]), "R001"),
    ('Unexpected key(s) in state_dict: "fc.weight". ', "R002"),
    (size("fc.weight", [1000, 2048], [20, 2048]), "S501"),
    (size("model.embed_tokens.weight", [32001, 4096], [32000, 4096]), "S502"),
    (size("pos_embed", [1, 578, 384], [1, 258, 384]), "S503"),
    (size("conv1.weight", [64, 3, 7, 7], [64, 1, 7, 7]), "S504"),
    (size("c_attn.weight", [768, 2304], [2304, 768]), "S505"),
    (size("logit_scale", [], [1]), "S506"),
    (size("a.weight", [0], [20, 20]), "S511"),
    (size("layer3.conv.weight", [64, 5], [64, 6]), "R003"),
    ("KeyError: 'unexpected key \"module.conv1.weight\" in state_dict'", "R002"),
    ("KeyError: 'missing keys in state_dict: \"{\\'fc.bias\\', \\'fc.weight\\'}\"'", "R001"),
    (
        "RuntimeError: While copying the parameter named fc.weight, whose dimensions in the model are torch.Size([10,"
        " 5]) and whose dimensions in the checkpoint are torch.Size([7, 5]).",
        "S501",
    ),
    (
        "Some weights of the model checkpoint at ./out were not used when initializing BertModel: ['cls.bias']\n- This"
        " IS expected",
        "R002",
    ),
    (
        "Some weights of BertModel were not initialized from the model checkpoint at ./out and are newly initialized:"
        " ['pooler.weight']\nYou should probably TRAIN",
        "R001",
    ),
    ("LlamaForCausalLM were not initialized and are newly initialized: ['model.embed_tokens.weight']", "A702"),
    (
        "Some weights of M were not initialized from the model checkpoint at x and are newly initialized because the"
        " shapes did not match:\n- classifier.weight: found shape torch.Size([2, 8]) in the checkpoint and"
        " torch.Size([5, 8]) in the model instantiated\n",
        "S501",
    ),
    ("M LOAD REPORT from: x\nKey | Status |\n----+--\nt5.weight | MISSING |\n", "R001"),
    (
        "M LOAD REPORT from: x\nclassifier.bias | MISMATCH | Reinit due to size mismatch - ckpt: torch.Size([2]) vs"
        " model:torch.Size([5])\n",
        "S501",
    ),
    (
        "The model and loaded state dict do not match exactly\n\nunexpected key in source state_dict: module.a.weight\n"
        "\nmissing keys in source state_dict: a.weight\n",
        "N401",
    ),
]
