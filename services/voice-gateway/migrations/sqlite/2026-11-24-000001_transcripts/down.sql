DROP INDEX voice_sessions_of_user;
DROP TABLE voice_utterances;
