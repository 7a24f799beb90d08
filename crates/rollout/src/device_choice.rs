//! The device that a user names.

use std::str::FromStr;

/// A device to judge on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// `cuda:0`; the cpu device when no GPU works.
    Auto,
    /// The host's cores.
    Cpu,
    /// A GPU by its number.
    Cuda(u32),
    /// Every GPU.
    All,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "all" => Ok(Self::All),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| "expected auto, cpu, cuda:N or all".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed() {
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert!("cuda:-1".parse::<DeviceChoice>().is_err());
        assert!("gpu".parse::<DeviceChoice>().is_err());
    }
}
