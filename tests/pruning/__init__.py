"""Tests of ckptdoctor.pruning."""
