"""Tests of ckptdoctor.inplace."""
