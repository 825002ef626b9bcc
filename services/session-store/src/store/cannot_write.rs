//! Why the machine of a session cannot write in it, as a column of its row.

use ensemble_store_kit::StoreError;
use ensemble_types::sessions::CannotWrite;

pub(crate) fn number(why: CannotWrite) -> Option<i16> {
    CannotWrite::ALL.into_iter().position(|known| known == why).and_then(|at| i16::try_from(at).ok())
}

pub(crate) fn from_number(operation: &'static str, number: i16) -> Result<CannotWrite, StoreError> {
    let why = usize::try_from(number).ok().and_then(|at| CannotWrite::ALL.get(at)).copied();
    why.ok_or_else(|| StoreError::bad_row(operation, format!("a machine cannot write for an unknown reason: {number}")))
}
