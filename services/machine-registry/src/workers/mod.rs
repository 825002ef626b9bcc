//! Loops that run as long as the service does.

mod absences;
mod deletion_notifier;

pub(crate) use absences::Absences;
pub(crate) use deletion_notifier::DeletionNotifier;
