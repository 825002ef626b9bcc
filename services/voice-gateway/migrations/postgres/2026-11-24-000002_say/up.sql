-- Null: a turn of the person. Otherwise words that the agent speaks as they are; true: at once.
ALTER TABLE voice_texts ADD COLUMN say boolean;
