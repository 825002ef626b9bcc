ALTER TABLE voice_texts DROP COLUMN say;
