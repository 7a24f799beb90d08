//! Reads the C++ namespace path of a mangled symbol: `_ZN2at4_ops6matmul4callE...` is
//! `at::_ops::matmul::call`.
//!
//! Only the leading names are read, up to the first template argument, operator or constructor:
//! they suffice to identify a symbol's owner. A symbol that cannot be read has no path, and an
//! allow list refuses it.

/// The leading names of a C++ symbol; `None` for C names and for unsupported symbols.
pub(crate) fn path(symbol: &str) -> Option<Vec<&str>> {
    let rest = symbol.strip_prefix("_Z")?;
    // Virtual tables, type information, guards of local variables, thread-local wrappers.
    let special = ["TV", "TT", "TI", "TS", "GV", "TH", "TW"];
    let kind = special.iter().find_map(|s| rest.strip_prefix(s).map(|rest| (*s, rest)));
    let (described, rest) = kind.map_or((false, rest), |(s, rest)| (s != "GV", rest));
    let mut reader = Reader { rest, path: Vec::new() };
    if let Some(nested) = reader.rest.strip_prefix('N') {
        reader.rest = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
        while reader.component() {}
        let _ = reader.operator();
    } else {
        // A name at namespace scope; `St` stands for `std::` in front of it.
        if reader.component() && reader.path == ["std"] {
            let _ = reader.component() || reader.operator();
        }
        if reader.path.is_empty() && !reader.operator() && described {
            return fundamental(reader.rest).then(|| vec!["typeinfo"]);
        }
    }
    (!reader.path.is_empty()).then_some(reader.path)
}

struct Reader<'a> {
    rest: &'a str,
    path: Vec<&'a str>,
}

impl Reader<'_> {
    /// Reads one name, if there is one.
    fn component(&mut self) -> bool {
        let abbreviations = [
            ("St", "std"),
            ("Sa", "allocator"),
            ("Sb", "basic_string"),
            ("Ss", "basic_string"),
            ("Si", "basic_istream"),
            ("So", "basic_ostream"),
            ("Sd", "basic_iostream"),
        ];
        if self.path.is_empty() {
            for (short, name) in abbreviations {
                if let Some(rest) = self.rest.strip_prefix(short) {
                    self.rest = rest;
                    self.path.push("std");
                    if name != "std" {
                        self.path.push(name);
                    }
                    return true;
                }
            }
        }
        // `L` marks internal linkage, `B` a tag of the ABI that is part of the name before.
        let rest = self.rest.strip_prefix('L').unwrap_or(self.rest);
        let (tag, rest) = rest.strip_prefix('B').map_or((false, rest), |rest| (true, rest));
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some(length) = rest[..digits].parse::<usize>().ok().filter(|l| *l > 0) else {
            return false;
        };
        let Some(name) = digits.checked_add(length).and_then(|end| rest.get(digits..end)) else {
            return false;
        };
        self.rest = &rest[digits + length..];
        if !tag {
            self.path.push(name);
        }
        true
    }

    /// Reads a free operator function.
    fn operator(&mut self) -> bool {
        let known = [
            ("nw", "operator new"),
            ("na", "operator new[]"),
            ("dl", "operator delete"),
            ("da", "operator delete[]"),
            ("ls", "operator<<"),
            ("rs", "operator>>"),
            ("pl", "operator+"),
            ("eq", "operator=="),
            ("ne", "operator!="),
            ("lt", "operator<"),
        ];
        let found = known.iter().find(|(code, _)| self.rest.starts_with(code));
        if let Some((_, name)) = found {
            self.path.push(name);
        }
        found.is_some()
    }
}

/// Whether this is a built-in type, or a pointer to one.
fn fundamental(code: &str) -> bool {
    let plain = code.trim_start_matches(['P', 'K']);
    (plain.len() == 1 && plain.bytes().all(|b| b.is_ascii_lowercase()))
        || (plain.len() == 2 && plain.starts_with('D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_are_read_from_mangled_symbols() {
        for (symbol, expected) in [
            ("_ZN2at4_ops6matmul4callERKNS_6TensorES4_", "at::_ops::matmul::call"),
            ("_ZNK2at10TensorBase8data_ptrIfEEPT_v", "at::TensorBase::data_ptr"),
            ("_ZN2at3cpu4siluERKNS_6TensorE", "at::cpu::silu"),
            ("_ZN3c105ErrorC1ENS_14SourceLocationE", "c10::Error"),
            ("_ZTVN5torch8autograd12AutogradMetaE", "torch::autograd::AutogradMeta"),
            ("_ZTIb", "typeinfo"),
            ("_ZTIPKc", "typeinfo"),
            ("_ZTISt9bad_alloc", "std::bad_alloc"),
            ("_ZSt4cerr", "std::cerr"),
            ("_ZNSolsEi", "std::basic_ostream::operator<<"),
            ("_ZNKSt9exception4whatEv", "std::exception::what"),
            ("_ZNSt7__cxx1112basic_stringIcE9_M_createERmm", "std::__cxx11::basic_string"),
            ("_ZNSt6thread15_M_start_threadE", "std::thread::_M_start_thread"),
            ("_ZStlsISt11char_traitsIcEE", "std::operator<<"),
            ("_ZN3c10lsERSoNS_6DeviceE", "c10::operator<<"),
            ("_Znwm", "operator new"),
            ("_ZdaPvm", "operator delete[]"),
            ("_Z9somethingv", "something"),
            ("_ZNSt13runtime_errorC1ERKNSt7__cxx1112basic_stringE", "std::runtime_error"),
            ("_ZNSt6localeC1EvB5cxx11", "std::locale"),
        ] {
            assert_eq!(path(symbol).unwrap().join("::"), expected, "{symbol}");
        }
        for unknown in ["sgemm_", "_Z", "_ZThn16_N2at1fEv", "_ZN0", "_ZN99x", "_ZTI"] {
            assert_eq!(path(unknown), None, "{unknown}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_symbol_reading_panic(text in "_Z[NSTLBKIVi0-9a-zé]{0,40}") {
            let _ = path(&text);
        }
    }
}
