//! Loops that run as long as the service does.

mod deletion_notifier;

pub(crate) use deletion_notifier::DeletionNotifier;
