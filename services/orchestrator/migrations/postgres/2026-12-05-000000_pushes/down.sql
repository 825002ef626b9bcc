DROP TABLE pushes;
