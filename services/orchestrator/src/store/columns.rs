//! Text columns that hold an enum or a name. A value that is none is an error and not a default.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::Text;
use ensemble_types::changes::LeaseWaitsFor;
use ensemble_types::runs::{ChangesState, Isolation, Permission, Provider, RunStatus, TaskSession, TaskStatus};

macro_rules! text_column {
    ($column:ident, $of:ident, |$text:ident| $found:expr) => {
        /// For `#[diesel(deserialize_as)]` in row structs.
        #[derive(Clone, Copy, Debug, FromSqlRow)]
        pub(crate) struct $column($of);

        impl<DB: Backend> FromSql<Text, DB> for $column
        where
            String: FromSql<Text, DB>,
        {
            fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
                let $text = String::from_sql(value)?;
                let found: Option<$of> = $found;
                found.map(Self).ok_or_else(|| format!("{:?} is not a {}", $text, stringify!($of)).into())
            }
        }

        impl From<$of> for $column {
            fn from(value: $of) -> Self {
                Self(value)
            }
        }

        impl From<$column> for $of {
            fn from(column: $column) -> Self {
                column.0
            }
        }
    };
    ($column:ident, $of:ident, $values:expr) => {
        text_column!($column, $of, |text| $values.into_iter().find(|value: &$of| value.as_str() == text));
    };
}

text_column!(
    RunStatusColumn,
    RunStatus,
    [
        RunStatus::Queued,
        RunStatus::Running,
        RunStatus::Canceling,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Cancelled,
    ]
);

text_column!(
    TaskStatusColumn,
    TaskStatus,
    [
        TaskStatus::Queued,
        TaskStatus::Dispatching,
        TaskStatus::Running,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
        TaskStatus::DependencyFailed,
    ]
);

text_column!(ProviderColumn, Provider, |text| text.parse().ok());
text_column!(PermissionColumn, Permission, Permission::ALL);
text_column!(IsolationColumn, Isolation, Isolation::ALL);
text_column!(ChangesStateColumn, ChangesState, ChangesState::ALL);
text_column!(TaskSessionColumn, TaskSession, TaskSession::ALL);
text_column!(WaitsForColumn, LeaseWaitsFor, LeaseWaitsFor::ALL);
