DROP TABLE viewings;
DROP TABLE links;
DROP TABLE shares;
DROP TABLE messages;
DROP TABLE session_contents;
DROP TABLE sessions;
