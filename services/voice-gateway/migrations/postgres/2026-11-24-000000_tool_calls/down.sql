DROP TABLE voice_tool_calls;
