DROP TABLE live_frames;
