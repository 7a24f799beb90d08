//! `teach TRACE.json OUT_DIR cpu|cuda [plain]`: writes what the teacher makes of a trace.

use std::error::Error;
use std::path::Path;

use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, trace, out, device, rest @ ..] = args.as_slice() else {
        return Err("usage: teach TRACE.json OUT_DIR cpu|cuda [plain]".into());
    };
    let cpu = device == "cpu";
    let facts = DeviceFacts {
        device: if cpu { "cpu" } else { "cuda:0" }.to_owned(),
        hardware: String::new(),
        arch: (!cpu).then(|| "sm_90".to_owned()),
        processors: if cpu { 2 } else { 132 },
        bandwidth_bytes_per_second: None,
        cache_bytes: 50 << 20,
        shared_bytes_per_block: 227 << 10,
    };
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
