DROP INDEX sessions_over;
