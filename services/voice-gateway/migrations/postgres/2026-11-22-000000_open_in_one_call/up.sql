-- A start asks the database once instead of four times. What the numbers mean is decided by the gateway: these functions
-- count, and compare with bounds that they are given.

-- What is in use when `a_user` wants to talk in `a_session`: others of this user, whether one will be replaced, all others,
-- and today's seconds of this user and of everybody. What is not asked for is 0.
-- Seconds count for the day (UTC) on which a session began, from the moment when person and agent were together.
CREATE FUNCTION voice_in_use(
    a_user text, a_session text, ask_total boolean, ask_user_seconds boolean, ask_total_seconds boolean,
    OUT at timestamptz, OUT user_sessions bigint, OUT replaces boolean, OUT total_sessions bigint, OUT user_seconds bigint,
    OUT total_seconds bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT
        clock_timestamp(), count(DISTINCT s.session_id) FILTER (WHERE s.session_id <> a_session),
        count(*) FILTER (WHERE s.session_id = a_session) > 0
    INTO at, user_sessions, replaces
    FROM voice_sessions s WHERE s.phase IN ('creating', 'live') AND s.user_id = a_user;
    total_sessions := 0;
    user_seconds := 0;
    total_seconds := 0;
    IF ask_total THEN
        SELECT count(*) INTO total_sessions FROM voice_sessions s
        WHERE s.phase IN ('creating', 'live') AND NOT (s.user_id = a_user AND s.session_id = a_session);
    END IF;
    IF ask_user_seconds THEN
        SELECT coalesce(sum(greatest(floor(extract(epoch FROM at - s.active_at)), 0))::bigint, 0) + coalesce((
            SELECT u.seconds FROM voice_usage u
            WHERE u.day = to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AND u.user_id = a_user
        ), 0)
        INTO user_seconds FROM voice_sessions s
        WHERE s.phase IN ('creating', 'live') AND s.user_id = a_user
            AND (s.created_at AT TIME ZONE 'UTC')::date = (at AT TIME ZONE 'UTC')::date;
    END IF;
    IF ask_total_seconds THEN
        SELECT coalesce(sum(greatest(floor(extract(epoch FROM at - s.active_at)), 0))::bigint, 0) + coalesce((
            SELECT u.seconds FROM voice_usage u
            WHERE u.day = to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AND u.user_id = ''
        ), 0)
        INTO total_seconds FROM voice_sessions s
        WHERE s.phase IN ('creating', 'live')
            AND (s.created_at AT TIME ZONE 'UTC')::date = (at AT TIME ZONE 'UTC')::date;
    END IF;
END
$$;

-- Records a session if all is far from its limits: each number below its bound, the key unused, and the caller's idea of the
-- time right. Otherwise nothing is recorded, and the caller looks more closely.
--
-- Not flushed: the write that makes the session live does that, and nobody is told of it before. When it is `repeated`
-- after a lost answer, it may find that the first call has recorded the session.
CREATE FUNCTION voice_open(
    turn bigint, a_user text, a_session text,
    known_total bigint, below_user_sessions bigint, below_total_sessions bigint, below_user_seconds bigint,
    below_total_seconds bigint,
    a_key text, a_route text, a_body_hash bytea,
    new_id uuid, new_room text, new_record text, new_created_at timestamptz, new_expires_at timestamptz,
    new_due_at timestamptz, new_agent_token bytea, new_context_version bigint, new_context text,
    repeated boolean,
    OUT opened boolean, OUT at timestamptz, OUT replaces boolean, OUT total_sessions bigint
) LANGUAGE plpgsql AS $$
DECLARE
    seen record;
    no_bound CONSTANT bigint := 9223372036854775807;
    clock_error CONSTANT interval := '250 ms';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- The starts of one user take turns, so this count sees all that went before.
    PERFORM pg_advisory_xact_lock(turn);
    seen := voice_in_use(
        a_user, a_session, known_total IS NULL AND below_total_sessions < no_bound,
        below_user_seconds < no_bound, below_total_seconds < no_bound
    );
    at := seen.at;
    replaces := seen.replaces;
    total_sessions := coalesce(known_total, seen.total_sessions);
    opened := seen.user_sessions < below_user_sessions
        AND total_sessions < below_total_sessions
        AND seen.user_seconds < below_user_seconds
        AND seen.total_seconds < below_total_seconds
        AND new_created_at BETWEEN at - clock_error AND at + clock_error;
    IF repeated AND EXISTS (SELECT 1 FROM voice_sessions s WHERE s.id = new_id) THEN
        opened := true;
        -- The caller's record is not the one that is there; with this it takes the way that looks.
        replaces := true;
        RETURN;
    END IF;
    IF opened AND a_key IS NOT NULL THEN
        INSERT INTO idempotency_keys (scope, route, key, body_hash, resource, created_at)
        VALUES (a_user, a_route, a_key, a_body_hash, new_id::text, at)
        ON CONFLICT DO NOTHING;
        opened := FOUND;
    END IF;
    IF opened THEN
        INSERT INTO voice_sessions
            (id, user_id, session_id, room_name, phase, created_at, expires_at, record, due_at, agent_token, idempotency_key)
        VALUES
            (new_id, a_user, a_session, new_room, 'creating', new_created_at, new_expires_at, new_record, new_due_at,
             new_agent_token, a_key);
        IF new_context IS NOT NULL THEN
            INSERT INTO voice_contexts (session, version, body) VALUES (new_id, new_context_version, new_context);
        END IF;
    END IF;
END
$$;
