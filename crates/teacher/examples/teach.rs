//! `teach TRACE.json OUT_DIR cpu|cuda [plain]`: writes the built-in policy's kernels for a trace.

use std::error::Error;
use std::path::Path;

use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, trace, out, device, rest @ ..] = args.as_slice() else {
        return Err("usage: teach TRACE.json OUT_DIR cpu|cuda [plain]".into());
    };
    let facts = DeviceFacts::assumed(if device == "cpu" { "cpu" } else { "cuda:0" });
    let plain = rest.iter().any(|a| a == "plain");
    let files = warpwright_teacher::translate(
        &fs_err::read_to_string(trace)?,
        &facts,
        Profile::Strict,
        plain,
    )?;
    for (path, text) in files {
        let path = Path::new(out).join(path);
        fs_err::create_dir_all(path.parent().unwrap_or(&path))?;
        fs_err::write(path, text)?;
    }
    Ok(())
}
