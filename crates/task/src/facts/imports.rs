//! Which packages a module needs.

use ruff_python_ast::Stmt;
use ruff_text_size::Ranged;

use super::error::TaskErrorKind;
use super::excerpt::Lines;
use super::found::{Import, Presence};
use super::module::blocks;

/// Imports at module level, in order of appearance.
pub(crate) fn read(body: &[Stmt], lines: &Lines<'_>) -> Result<Vec<Import>, TaskErrorKind> {
    let mut imports = Vec::new();
    collect(body, Presence::Required, lines, &mut imports)?;
    Ok(imports)
}

fn collect(
    body: &[Stmt],
    presence: Presence,
    lines: &Lines<'_>,
    imports: &mut Vec<Import>,
) -> Result<(), TaskErrorKind> {
    for statement in body {
        let mut push = |module: &str| {
            let package = module.split('.').next().unwrap_or(module).to_owned();
            let distribution = distribution(&package);
            let position = lines.position(statement.start());
            imports.push(Import { package, distribution, presence, position });
        };
        match statement {
            Stmt::Import(import) => import.names.iter().for_each(|alias| push(&alias.name)),
            Stmt::ImportFrom(import) if import.level > 0 => {
                return Err(TaskErrorKind::RelativeImport { at: lines.place(statement.start()) });
            }
            Stmt::ImportFrom(import) => {
                if let Some(module) = &import.module {
                    push(module);
                }
            }
            // `with` runs its body once; everything else that has blocks may not.
            Stmt::With(with) => collect(&with.body, presence, lines, imports)?,
            _ => {
                for block in blocks(statement) {
                    collect(block, Presence::Optional, lines, imports)?;
                }
            }
        }
    }
    Ok(())
}

/// What registries call the distribution that brings `package`; `None` for Python's own modules.
fn distribution(package: &str) -> Option<String> {
    if package.starts_with('_') || STANDARD_LIBRARY.binary_search(&package).is_ok() {
        return None;
    }
    let name = match package {
        "PIL" => "Pillow",
        "cv2" => "opencv-python",
        "skimage" => "scikit-image",
        "sklearn" => "scikit-learn",
        "yaml" => "PyYAML",
        "flash_attn" => "flash-attn",
        "torch_geometric" => "torch-geometric",
        "torch_scatter" => "torch-scatter",
        "mpl_toolkits" => "matplotlib",
        other => other,
    };
    Some(name.to_owned())
}

/// Public modules of Python 3.11 to 3.13 (`sys.stdlib_module_names`), sorted.
#[rustfmt::skip]
const STANDARD_LIBRARY: [&str; 217] = [
    "abc", "aifc", "antigravity", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore",
    "atexit", "audioop", "base64", "bdb", "binascii", "bisect", "builtins", "bz2", "cProfile",
    "calendar", "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop", "collections",
    "colorsys", "compileall", "concurrent", "configparser", "contextlib", "contextvars", "copy",
    "copyreg", "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal",
    "difflib", "dis", "distutils", "doctest", "email", "encodings", "ensurepip", "enum", "errno",
    "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib", "functools",
    "gc", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib", "grp", "gzip",
    "hashlib", "heapq", "hmac", "html", "http", "idlelib", "imaplib", "imghdr", "imp", "importlib",
    "inspect", "io", "ipaddress", "itertools", "json", "keyword", "lib2to3", "linecache", "locale",
    "logging", "lzma", "mailbox", "mailcap", "marshal", "math", "mimetypes", "mmap", "modulefinder",
    "msilib", "msvcrt", "multiprocessing", "netrc", "nis", "nntplib", "nt", "ntpath", "nturl2path",
    "numbers", "opcode", "operator", "optparse", "os", "ossaudiodev", "pathlib", "pdb", "pickle",
    "pickletools", "pipes", "pkgutil", "platform", "plistlib", "poplib", "posix", "posixpath",
    "pprint", "profile", "pstats", "pty", "pwd", "py_compile", "pyclbr", "pydoc", "pydoc_data",
    "pyexpat", "queue", "quopri", "random", "re", "readline", "reprlib", "resource", "rlcompleter",
    "runpy", "sched", "secrets", "select", "selectors", "shelve", "shlex", "shutil", "signal",
    "site", "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3",
    "sre_compile", "sre_constants", "sre_parse", "ssl", "stat", "statistics", "string",
    "stringprep", "struct", "subprocess", "sunau", "symtable", "sys", "sysconfig", "syslog",
    "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap", "this", "threading",
    "time", "timeit", "tkinter", "token", "tokenize", "tomllib", "trace", "traceback",
    "tracemalloc", "tty", "turtle", "turtledemo", "types", "typing", "unicodedata", "unittest",
    "urllib", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser", "winreg",
    "winsound", "wsgiref", "xdrlib", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib",
    "zoneinfo",
];
