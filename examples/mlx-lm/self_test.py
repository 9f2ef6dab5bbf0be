"""Whether model.py names what it should: operations that MLX computes otherwise, and faults that are planted."""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

# `compare` comes before what imports mlx.nn: it records operations.
from compare import compare, Setting  # isort: skip

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

import model as script
from forward import gpt_oss
from row_policy import row_policy
from tiny_models import MODELS, VOCABULARY, build, caches_after, mlx_lm

