DROP TABLE voice_chores;
DROP TABLE voice_usage;
DROP TABLE voice_webhooks;
DROP TABLE voice_contexts;
DROP TABLE voice_texts;
DROP TABLE voice_sessions;
