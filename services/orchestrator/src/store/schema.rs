//! The tables, as diesel sees them. `migrations/` says what each column is for.

use diesel::{allow_tables_to_appear_in_same_query, joinable, table};

table! {
    use diesel::sql_types::{BigInt, Binary, Bool, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, RefText, Uid};

    runs (id) {
        id -> Uid,
        #[sql_name = "ref"]
        reference -> RefText,
        owner_id -> Uid,
        title -> Nullable<Text>,
        status -> Text,
        cancel_reason -> Nullable<Text>,
        max_concurrency -> Integer,
        spread -> Bool,
        pinned -> Bool,
        machine_id -> Nullable<Text>,
        wanted_machine_id -> Nullable<Text>,
        traceparent -> Nullable<Text>,
        total -> Integer,
        queued -> Integer,
        running -> Integer,
        completed -> Integer,
        failed -> Integer,
        cancelled -> Integer,
        ready -> Integer,
        version -> BigInt,
        served_at -> Moment,
        stored_bytes -> BigInt,
        unsettled -> Bool,
        requeue_from -> Nullable<Integer>,
        requeue_version -> Nullable<BigInt>,
        request_hash -> Nullable<Binary>,
        created_at -> Moment,
        updated_at -> Moment,
        started_at -> Nullable<Moment>,
        finished_at -> Nullable<Moment>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    tasks (id) {
        id -> Uid,
        run_id -> Uid,
        owner_id -> Uid,
        position -> Integer,
        provider -> Text,
        machine_id -> Nullable<Text>,
        templated -> Bool,
        dependents -> Integer,
        timeout_ms -> BigInt,
        max_attempts -> Integer,
        backoff_ms -> BigInt,
        backoff_factor -> Double,
        status -> Text,
        attempt -> Integer,
        refusals -> Integer,
        open_deps -> Integer,
        failures -> Integer,
        losses -> Integer,
        not_before -> Nullable<Moment>,
        version -> BigInt,
        ran_on -> Nullable<Text>,
        error_code -> Nullable<Text>,
        error_message -> Nullable<Text>,
        output_summary -> Nullable<Text>,
        exit_code -> Nullable<Integer>,
        input_tokens -> Nullable<BigInt>,
        output_tokens -> Nullable<BigInt>,
        cost_usd -> Nullable<Double>,
        provider_session_id -> Nullable<Text>,
        created_at -> Moment,
        started_at -> Nullable<Moment>,
        finished_at -> Nullable<Moment>,
    }
}

table! {
    use diesel::sql_types::{Bool, Double, Integer, Nullable, Text};
    use ensemble_store_kit::types::{RefText, Uid};

    task_specs (task_id) {
        task_id -> Uid,
        owner_id -> Uid,
        #[sql_name = "ref"]
        reference -> RefText,
        task_key -> Nullable<Text>,
        title -> Nullable<Text>,
        prompt -> Text,
        model -> Nullable<Text>,
        working_directory -> Nullable<Text>,
        permission -> Nullable<Text>,
        allowed_tools -> Nullable<Text>,
        fail_on_denial -> Bool,
        isolation -> Nullable<Text>,
        base -> Nullable<Text>,
        base_task -> Nullable<Uid>,
        follow_up -> Nullable<Text>,
        follow_up_fence -> Nullable<Integer>,
        stale -> Bool,
        max_cost_usd -> Nullable<Double>,
        spent_usd -> Double,
        quota_waits -> Integer,
        session_cost_usd -> Double,
        session_cost_of -> Nullable<Text>,
    }
}

table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::{Moment, Uid};

    provider_holds (owner_id, machine_id, provider) {
        owner_id -> Uid,
        machine_id -> Text,
        provider -> Text,
        held_until -> Moment,
    }
}

table! {
    use diesel::sql_types::{Integer, Nullable, Text};
    use ensemble_store_kit::types::Uid;

    task_permissions (task_id) {
        task_id -> Uid,
        owner_id -> Uid,
        permission -> Nullable<Text>,
        denial_count -> Integer,
        denials -> Text,
    }
}

table! {
    use diesel::sql_types::{Nullable, Text};
    use ensemble_store_kit::types::Uid;

    task_sessions (task_id) {
        task_id -> Uid,
        owner_id -> Uid,
        kind -> Text,
        sealed -> Text,
        session_id -> Nullable<Uid>,
    }
}

table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Uid;

    task_signatures (task_id, kind) {
        task_id -> Uid,
        owner_id -> Uid,
        kind -> Text,
        key -> Text,
        sig -> Text,
        body -> Text,
    }
}

table! {
    use diesel::sql_types::Integer;
    use ensemble_store_kit::types::Uid;

    dependencies (task_id, place) {
        task_id -> Uid,
        owner_id -> Uid,
        place -> Integer,
        depends_on -> Uid,
    }
}

table! {
    use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    leases (id) {
        id -> Uid,
        run_id -> Uid,
        task_id -> Uid,
        owner_id -> Uid,
        machine_id -> Text,
        attempt -> Integer,
        refusals -> Integer,
        refused -> Bool,
        granted_at -> Moment,
        beaten_at -> Nullable<Moment>,
        expires_at -> Moment,
        timeout_at -> Nullable<Moment>,
        due_at -> Moment,
        cancel_requested -> Bool,
        cancel_received -> Bool,
        ended_at -> Nullable<Moment>,
        end_reason -> Nullable<Text>,
        outcome -> Nullable<Text>,
        output_length -> BigInt,
        output_stored -> BigInt,
        output_cut -> Bool,
        output_bytes -> BigInt,
        output_counted -> BigInt,
        waiting_for -> Nullable<Text>,
        waiting_since -> Nullable<Moment>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Binary};
    use ensemble_store_kit::types::Uid;

    output_chunks (lease_id, start_at) {
        lease_id -> Uid,
        owner_id -> Uid,
        start_at -> BigInt,
        data -> Binary,
    }
}

table! {
    use diesel::sql_types::{Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    runners (owner_id, machine_id) {
        owner_id -> Uid,
        machine_id -> Text,
        providers -> Text,
        seen_until -> Moment,
        slots -> Nullable<Integer>,
    }
}

table! {
    use diesel::sql_types::{Bool, Integer, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    task_refusals (task_id, fence) {
        task_id -> Uid,
        fence -> Integer,
        run_id -> Uid,
        owner_id -> Uid,
        machine_id -> Text,
        provider -> Text,
        code -> Text,
        message -> Text,
        is_void -> Bool,
        refused_at -> Moment,
    }
}

table! {
    use diesel::sql_types::{Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    deleted_machines (owner_id, machine_id) {
        owner_id -> Uid,
        machine_id -> Text,
        deleted_at -> Moment,
        ended_until -> Nullable<Moment>,
        registered_at -> Nullable<Moment>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    task_changes (task_id) {
        task_id -> Uid,
        run_id -> Uid,
        owner_id -> Uid,
        machine_id -> Text,
        state -> Text,
        files -> Text,
        file_count -> Integer,
        added -> BigInt,
        removed -> BigInt,
        uncommitted -> Integer,
        conflicted -> Text,
        order_id -> Nullable<Uid>,
        order_until -> Nullable<Moment>,
        order_taken -> Bool,
        state_before -> Nullable<Text>,
        is_unknown -> Bool,
        is_partial -> Bool,
        notes -> Text,
        failure -> Nullable<Text>,
    }
}

table! {
    use diesel::sql_types::{Integer, Text};
    use ensemble_store_kit::types::Uid;

    task_diffs (task_id, path, piece) {
        task_id -> Uid,
        owner_id -> Uid,
        path -> Text,
        piece -> Integer,
        data -> Text,
        size -> Integer,
    }
}

table! {
    use diesel::sql_types::{BigInt, Bool, Integer};
    use ensemble_store_kit::types::Uid;

    task_diff_ends (task_id) {
        task_id -> Uid,
        owner_id -> Uid,
        fence -> Integer,
        stored_bytes -> BigInt,
        truncated -> Bool,
    }
}

table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Uid;

    task_messages (task_id, message_id) {
        task_id -> Uid,
        owner_id -> Uid,
        message_id -> Text,
    }
}

table! {
    use diesel::sql_types::{BigInt, Double, Integer, Text};
    use ensemble_store_kit::types::Uid;

    usage_days (owner_id, day, machine_id, provider) {
        owner_id -> Uid,
        day -> Integer,
        machine_id -> Text,
        provider -> Text,
        attempts -> BigInt,
        input_tokens -> BigInt,
        output_tokens -> BigInt,
        cost_usd -> Double,
    }
}

table! {
    use diesel::sql_types::Nullable;
    use ensemble_store_kit::types::Uid;

    ended_tasks (run_id, task_id) {
        run_id -> Uid,
        task_id -> Uid,
        owner_id -> Uid,
        #[sql_name = "told_until"]
        notified_until -> Nullable<Uid>,
    }
}

table! {
    use diesel::sql_types::Bool;
    use ensemble_store_kit::types::{Moment, RefText, Uid};

    deleted_runs (run_id) {
        run_id -> Uid,
        owner_id -> Uid,
        #[sql_name = "ref"]
        reference -> RefText,
        deleted_at -> Moment,
        purged -> Bool,
    }
}

table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::{Moment, Uid};

    pushes (run_id) {
        run_id -> Uid,
        owner_id -> Uid,
        kind -> Text,
        attention -> Text,
        due_at -> Moment,
    }
}

joinable!(tasks -> runs (run_id));
joinable!(leases -> runs (run_id));
allow_tables_to_appear_in_same_query!(
    runs,
    tasks,
    task_specs,
    task_signatures,
    dependencies,
    leases,
    deleted_machines,
    ended_tasks
);
