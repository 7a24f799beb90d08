//! Readable kernel names from the Itanium mangling that `ptxas` prints.
//!
//! Only a function's name and its template arguments are demangled, not its parameters. Supported
//! are the constructs that kernels use: namespaces, templates over types, integers and booleans,
//! and substitutions. Any other name stays mangled.

/// `_ZN2ns5axpbyIfLi256EEEvPKT_PS1_i` becomes `ns::axpby<float, 256>`; unknown forms are returned
/// unchanged.
pub(crate) fn kernel_name(mangled: &str) -> String {
    let Some(rest) = mangled.strip_prefix("_Z") else {
        return mangled.to_owned();
    };
    let mut parser = Parser { text: rest.as_bytes(), at: 0, seen: Vec::new(), depth: 0 };
    parser.name().map_or_else(|| mangled.to_owned(), |name| name.replace("::(unnamed)::", "::"))
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// The components that `S_`, `S0_`, ... refer to.
    seen: Vec<String>,
    /// Nesting, bounded because the text may come from hostile sources.
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let found = self.text.get(self.at..).is_some_and(|t| t.starts_with(prefix.as_bytes()));
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn name(&mut self) -> Option<String> {
        if self.eat("N") {
            return self.nested();
        }
        let name = if self.peek() == Some(b'S') && self.text.get(self.at + 1) != Some(&b't') {
            self.substitution()?
        } else {
            let scope = if self.eat("St") { "std::" } else { "" };
            let name = format!("{scope}{}", self.source_name()?);
            if self.peek() == Some(b'I') {
                self.seen.push(name.clone());
            }
            name
        };
        if self.peek() == Some(b'I') { Some(name + &self.template_args()?) } else { Some(name) }
    }

    fn nested(&mut self) -> Option<String> {
        while matches!(self.peek(), Some(b'K' | b'V' | b'r')) {
            self.at += 1;
        }
        let mut path = String::new();
        loop {
            match self.peek()? {
                b'E' => {
                    self.at += 1;
                    return Some(path);
                }
                b'I' => path += &self.template_args()?,
                b'S' => {
                    if self.eat("St") {
                        path = String::from("std");
                    } else {
                        path = self.substitution()?;
                    }
                    continue;
                }
                _ => {
                    let name = self.source_name()?;
                    if !path.is_empty() {
                        path += "::";
                    }
                    path += &name;
                }
            }
            // The whole nested name is not a candidate for substitution as a function's name, but
            // is one as a type's; `kind` adds that one.
            if self.peek() != Some(b'E') {
                self.seen.push(path.clone());
            }
        }
    }

    fn source_name(&mut self) -> Option<String> {
        let mut length = 0usize;
        let start = self.at;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            length = length.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            self.at += 1;
        }
        if self.at == start || length == 0 {
            return None;
        }
        let bytes = self.text.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        let name = std::str::from_utf8(bytes).ok()?;
        // The compiler gives anonymous namespaces a long name with a hash of the file.
        let hidden = name.starts_with("_GLOBAL__N_") || name.starts_with("_INTERNAL_");
        Some(if hidden { "(unnamed)".to_owned() } else { name.to_owned() })
    }

    fn substitution(&mut self) -> Option<String> {
        if !self.eat("S") {
            return None;
        }
        let mut index = 0usize;
        if !self.eat("_") {
            while let Some(c) = self.peek() {
                self.at += 1;
                let digit = match c {
                    b'_' => {
                        index += 1;
                        return self.seen.get(index).cloned();
                    }
                    b'0'..=b'9' => c - b'0',
                    b'A'..=b'Z' => c - b'A' + 10,
                    _ => return None,
                };
                index = index.checked_mul(36)?.checked_add(usize::from(digit))?;
            }
            return None;
        }
        self.seen.get(index).cloned()
    }

    fn template_args(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > 32 || !self.eat("I") {
            return None;
        }
        let mut arguments = Vec::new();
        while !self.eat("E") {
            if self.eat("J") {
                while !self.eat("E") {
                    arguments.push(self.argument()?);
                }
            } else {
                arguments.push(self.argument()?);
            }
        }
        self.depth -= 1;
        Some(format!("<{}>", arguments.join(", ")))
    }

    fn argument(&mut self) -> Option<String> {
        if !self.eat("L") {
            return self.kind();
        }
        let kind = self.kind()?;
        let minus = if self.eat("n") { "-" } else { "" };
        let start = self.at;
        while self.peek()? != b'E' {
            self.at += 1;
        }
        let digits = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
        self.at += 1;
        match (kind.as_str(), digits) {
            ("bool", "0") => Some("false".to_owned()),
            ("bool", "1") => Some("true".to_owned()),
            _ if digits.bytes().all(|b| b.is_ascii_digit()) => Some(format!("{minus}{digits}")),
            _ => None,
        }
    }

    fn kind(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let result = self.kind_inner();
        self.depth -= 1;
        result
    }

    fn kind_inner(&mut self) -> Option<String> {
        let builtin = match self.peek()? {
            b'v' => "void",
            b'b' => "bool",
            b'c' => "char",
            b'a' => "signed char",
            b'h' => "unsigned char",
            b's' => "short",
            b't' => "unsigned short",
            b'i' => "int",
            b'j' => "unsigned int",
            b'l' => "long",
            b'm' => "unsigned long",
            b'x' => "long long",
            b'y' => "unsigned long long",
            b'f' => "float",
            b'd' => "double",
            _ => "",
        };
        if !builtin.is_empty() {
            self.at += 1;
            return Some(builtin.to_owned());
        }
        let made = match self.peek()? {
            b'P' => {
                self.at += 1;
                self.kind()? + "*"
            }
            b'R' => {
                self.at += 1;
                self.kind()? + "&"
            }
            b'K' => {
                self.at += 1;
                self.kind()? + " const"
            }
            b'S' if self.text.get(self.at + 1) != Some(&b't') => {
                let known = self.substitution()?;
                if self.peek() != Some(b'I') {
                    return Some(known);
                }
                known + &self.template_args()?
            }
            b'N' | b'S' | b'0'..=b'9' => self.name()?,
            _ => return None,
        };
        self.seen.push(made.clone());
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_name;

    #[test]
    fn kernel_names_are_demangled() {
        for (mangled, plain) in [
            ("_Z5plainPf", "plain"),
            ("_ZN2ns5axpbyIfLi256EEEvPKT_PS1_i", "ns::axpby<float, 256>"),
            ("_Z12axpby_kernelILi128EEvPfPKfS2_fi", "axpby_kernel<128>"),
            ("_Z3mapI4GeluLb1EEvPKfPfi", "map<Gelu, true>"),
            ("_Z3mapI6__halfS0_Lin1EEvPKT_PT0_", "map<__half, __half, -1>"),
            (
                "_ZN3one3two1kINS_4OpenENS0_3AddIfEEEEvPf",
                "one::two::k<one::Open, one::two::Add<float>>",
            ),
            (
                "_ZN48_GLOBAL__N__0123456789_4_a_cu_0123456789abcdef_1k6kernelEPf",
                "_ZN48_GLOBAL__N__0123456789_4_a_cu_0123456789abcdef_1k6kernelEPf",
            ),
            ("_ZN12_GLOBAL__N_11kEPf", "(unnamed)::k"),
            ("_Z1kIJfiEEvDpT_", "k<float, int>"),
            ("plain_c", "plain_c"),
            ("_Z", "_Z"),
            ("_ZZ4mainENKUlvE_clEv", "_ZZ4mainENKUlvE_clEv"),
        ] {
            assert_eq!(kernel_name(mangled), plain, "{mangled}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_demangling_panic(text in "_Z[NIESK_0-9a-zLJPR]{0,60}") {
            let _ = kernel_name(&text);
        }
    }
}
