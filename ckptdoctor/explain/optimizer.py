"""Optimizers and schedulers that do not take back their state."""

from __future__ import annotations

from ckptdoctor.explain.message import Message, Way

_ANEW = Way("or begin anew", "load the model's weights only, and let the optimizer start from nothing")

MESSAGES = (
    Message(
        "O751",
        ("doesn't match the size of optimizer's group",),
        "the optimizer was made for another number of parameters than it had when it was saved: layers were frozen,"
        " added, removed, or put into other groups",
        (Way("make the model and its groups as they were, then", "optimizer.load_state_dict(state)"), _ANEW),
    ),
    Message(
        "O751",
        ("loaded state dict has a different number of parameter groups",),
        "the optimizer was saved with another number of parameter groups (weight decay apart from the rest, for one)",
        (Way("make the groups as they were, then", "optimizer.load_state_dict(state)"), _ANEW),
    ),
    Message(
        "O752",
        ("must match the size of tensor b",),
        "the optimizer's state belongs to other parameters: it took the state back, but their order is another now."
        " Where sizes agree by chance, nothing is said at all",
        (Way("give it the parameters in the order of the save, then", "optimizer.load_state_dict(state)"), _ANEW),
        near=("optimizer.step", "torch/optim", "torch\\optim", "exp_avg", "momentum_buffer"),
    ),
    Message(
        "O753",
        ("KeyError: 'momentum'", "KeyError: 'betas'", "KeyError: 'amsgrad'", "KeyError: 'nesterov'"),
        "the state belongs to an optimizer of another class than the one that took it",
        (Way("use the class of the save, or", "leave the optimizer's state out"),),
    ),
    Message(
        "O753",
        ("KeyError: 'param_groups'", "KeyError('param_groups')"),
        "what was given to the optimizer has no param_groups, and is no state of an optimizer of torch: a scheduler's"
        " was saved under that name, or each rank saved a part of it (DeepSpeed)",
        (Way("see what it holds", "ckptdoctor show FILE"),),
        also=("O754", "O758", "X808"),
    ),
    Message(
        "O754",
        ("KeyError: 'optimizer'", "KeyError: 'optimizer_states'", "KeyError: 'optimizer_state_dict'"),
        "the checkpoint holds no optimizer state: released weights often do not. Training can start from it, not"
        " resume",
        (Way("see what it holds", "ckptdoctor show FILE"),),
    ),
    Message(
        "O754",
        (
            "Trying to restore optimizer state but checkpoint contains only the model",
            "Trying to restore learning rate scheduler state but checkpoint contains only the model",
            "Trying to restore training state but checkpoint contains only the model",
        ),
        "the checkpoint was saved without the state of training (save_weights_only=True): training can start from it,"
        " not resume",
        (
            Way("start from its weights", "model = MODEL.load_from_checkpoint(path)"),
            Way("see what it holds", "ckptdoctor show FILE"),
        ),
        also=("O761",),
    ),
    Message(
        "O754",
        ("param 'initial_lr' is not specified in param_groups[",),
        "a scheduler was made to resume (last_epoch), and the optimizer has not got its state back",
        (Way("first load the optimizer, then make the scheduler", "optimizer.load_state_dict(state)"),),
        also=("O758",),
    ),
    Message(
        "O760",
        ("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler",),
        "the checkpoint was saved with mixed precision off, so that the state of its GradScaler is empty;"
        " the scaler can"
        " start from nothing without harm",
        (
            Way(
                "load it only where there is one",
                'if checkpoint["scaler"]: scaler.load_state_dict(checkpoint["scaler"])',
            ),
        ),
    ),
    Message(
        "O760",
        (
            "KeyError: 'scaler'",
            "KeyError: 'scaler_state_dict'",
            "KeyError: 'grad_scaler'",
            "KeyError: 'amp'",
            "KeyError: 'amp_scaler'",
        ),
        "the checkpoint holds no state of a GradScaler: it was saved without mixed precision, or released without what"
        " training needs. The scaler can start from nothing without harm",
        (Way("see what it holds", "ckptdoctor show FILE"),),
        also=("O754",),
    ),
    Message(
        "O758",
        ("KeyError: 'lr_lambdas'", "KeyError: 'last_epoch'", "KeyError: 'lr_schedulers'", "KeyError: 'lr_scheduler'"),
        "the scheduler's state is not there, or belongs to one of another class",
        (Way("see what it holds", "ckptdoctor show FILE"),),
    ),
    Message(
        "O757",
        ("`capturable=False`, state_steps should not be CUDA tensors", "capturable=False, state_steps should not be"),
        "the optimizer's step counters were moved to the GPU; torch 1.12.0 does so when it loads its own state",
        (Way("upgrade torch", "pip install --upgrade torch"),),
    ),
)
