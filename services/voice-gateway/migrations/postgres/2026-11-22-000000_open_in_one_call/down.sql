DROP FUNCTION voice_open;
DROP FUNCTION voice_in_use;
