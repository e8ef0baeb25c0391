"""Compiles and loads the natural loops, which are no part of the product."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("natural_loop.pyx")
DIRECTORY = Path(__file__).parents[1] / "build" / "benchmarks"


def natural_loop() -> ModuleType:
    """The compiled module, made anew when its source has changed."""
    built = next(iter(DIRECTORY.glob("natural_loop.*.so")), None)
    if built is None or built.stat().st_mtime < SOURCE.stat().st_mtime:
        built = _compile()
    spec = importlib.util.spec_from_file_location("natural_loop", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile() -> Path:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension("natural_loop", [str(SOURCE)], extra_compile_args=["-O3", "-g0"])
    command = build_ext(Distribution({"ext_modules": cythonize([extension], build_dir=str(DIRECTORY), quiet=True)}))
    command.build_lib = command.build_temp = str(DIRECTORY)
    command.ensure_finalized()
    command.run()
    return next(iter(DIRECTORY.glob("natural_loop.*.so")))
