//! Mines a catalogue: `mine torch|transformers PYTHON OUT [PACKAGES...]`.

use std::sync::Arc;

use warpwright_jail::{Jail, Requirement};
use warpwright_synth::{Miner, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    warpwright_jail::init_if_requested();
    let mut words = std::env::args().skip(1);
    let (Some(source), Some(python), Some(out)) = (words.next(), words.next(), words.next()) else {
        return Err("usage: mine torch|transformers PYTHON OUT [PACKAGES...]".into());
    };
    let source = match source.as_str() {
        "torch" => Source::Torch,
        "transformers" => Source::Transformers,
        other => return Err(format!("`{other}` is neither torch nor transformers").into()),
    };
    let mut miner = Miner::new(Arc::new(Jail::detect(Requirement::Any)?), python);
    for folder in words {
        miner = miner.packages(folder);
    }
    fs_err::write(out, miner.mine(source)?)?;
    Ok(())
}
