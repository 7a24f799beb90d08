//! Guards: Python code that maps a value into the domain of the next operator.

use crate::catalogue::Domain;

/// Maps a value with `range` into `wanted`: Python with `{}` for the value. `None` if no guard is
/// needed.
pub(super) fn guard(range: Option<Domain>, wanted: Domain) -> Option<&'static str> {
    let non_negative = matches!(range, Some(Domain::NonNegative | Domain::ClosedUnit));
    match wanted {
        Domain::Any | Domain::Integer | Domain::Index | Domain::Bool => None,
        Domain::NonNegative | Domain::AboveMinusOne if non_negative => None,
        Domain::NonNegative | Domain::AboveMinusOne => Some("torch.abs({})"),
        Domain::Positive if non_negative => Some("{} + EPSILON"),
        Domain::Positive => Some("torch.abs({}) + EPSILON"),
        Domain::Nonzero | Domain::AtLeastOne if non_negative => Some("1.0 + {}"),
        Domain::Nonzero | Domain::AtLeastOne => Some("1.0 + torch.abs({})"),
        Domain::AboveOne if non_negative => Some("1.1 + {}"),
        Domain::AboveOne => Some("1.1 + torch.abs({})"),
        Domain::ClosedUnitBall
            if matches!(range, Some(Domain::ClosedUnit | Domain::ClosedUnitBall)) =>
        {
            None
        }
        Domain::ClosedUnitBall => Some("torch.tanh({})"),
        Domain::OpenUnitBall => Some("0.9 * torch.tanh({})"),
        Domain::ClosedUnit if range == Some(Domain::ClosedUnit) => None,
        Domain::ClosedUnit => Some("torch.sigmoid({})"),
        Domain::OpenUnit => Some("0.05 + 0.9 * torch.sigmoid({})"),
    }
}

/// Python that samples a tensor of `shape` (a text such as `BATCH, 64`) with values in `domain`;
/// `below` is for indices.
pub(super) fn drawn(domain: Domain, shape: &str, below: &str) -> String {
    // One dimension needs its comma in a tuple.
    let tuple = if shape.contains(',') { format!("({shape})") } else { format!("({shape},)") };
    match domain {
        Domain::Any => format!("torch.randn({shape})"),
        Domain::Nonzero => format!("torch.rand({shape}) + 0.5"),
        Domain::AboveMinusOne | Domain::NonNegative | Domain::ClosedUnit => {
            format!("torch.rand({shape})")
        }
        Domain::Positive => format!("torch.rand({shape}) + 0.1"),
        Domain::AtLeastOne => format!("torch.rand({shape}) + 1.0"),
        Domain::AboveOne => format!("torch.rand({shape}) + 1.1"),
        Domain::ClosedUnitBall => format!("2.0 * torch.rand({shape}) - 1.0"),
        Domain::OpenUnitBall => format!("1.8 * torch.rand({shape}) - 0.9"),
        Domain::OpenUnit => format!("0.05 + 0.9 * torch.rand({shape})"),
        Domain::Integer => format!("torch.randint(0, 8, {tuple})"),
        Domain::Index => format!("torch.randint(0, {below}, {tuple})"),
        Domain::Bool => format!("torch.rand({shape}) < 0.5"),
    }
}

/// Range of values sampled for `domain`.
pub(super) fn range_of(domain: Domain) -> Option<Domain> {
    match domain {
        Domain::ClosedUnit | Domain::NonNegative | Domain::AboveMinusOne | Domain::OpenUnit => {
            Some(Domain::ClosedUnit)
        }
        Domain::Positive | Domain::Nonzero | Domain::AtLeastOne | Domain::AboveOne => {
            Some(Domain::NonNegative)
        }
        Domain::ClosedUnitBall | Domain::OpenUnitBall => Some(Domain::ClosedUnitBall),
        Domain::Any | Domain::Integer | Domain::Index | Domain::Bool => None,
    }
}
