//! Stories with the real `ensemble`: commands, their output and their exit codes.
#![cfg(test)]

#[cfg(feature = "up")]
mod accounts;
#[cfg(feature = "up")]
mod acp;
#[cfg(feature = "up")]
mod acp_quits;
#[cfg(feature = "up")]
mod acp_servers;
#[cfg(feature = "up")]
mod acted_room;
#[cfg(feature = "up")]
mod agreed;
mod alone;
#[cfg(feature = "up")]
mod asked;
#[cfg(feature = "up")]
mod canaries;
#[cfg(feature = "up")]
mod changes;
#[cfg(feature = "up")]
mod clients;
#[cfg(feature = "up")]
mod continued;
#[cfg(feature = "up")]
mod conversations;
#[cfg(feature = "up")]
mod crowd;
#[cfg(feature = "up")]
mod data;
#[cfg(feature = "up")]
mod demo;
#[cfg(feature = "up")]
mod device_names;
#[cfg(feature = "up")]
mod devices;
#[cfg(feature = "up")]
mod doctor;
mod ensemble;
#[cfg(feature = "up")]
mod entrances;
#[cfg(feature = "up")]
mod faults;
#[cfg(feature = "up")]
mod first_client;
#[cfg(feature = "up")]
mod first_frame;
#[cfg(feature = "up")]
mod foot;
#[cfg(feature = "up")]
mod given_rights;
#[cfg(feature = "up")]
mod installed;
mod interruptions;
mod invited;
#[cfg(feature = "up")]
mod kept_files;
#[cfg(feature = "up")]
mod kept_rights;
#[cfg(feature = "up")]
mod killed;
#[cfg(feature = "up")]
mod lies;
#[cfg(feature = "up")]
mod lies_host;
#[cfg(feature = "up")]
mod lies_removed;
#[cfg(feature = "up")]
mod lies_runs;
#[cfg(feature = "up")]
mod lies_table;
#[cfg(feature = "up")]
mod lies_while_linking;
#[cfg(feature = "up")]
mod limits;
#[cfg(feature = "up")]
mod linked_machines;
#[cfg(feature = "up")]
mod linking;
#[cfg(feature = "up")]
mod lists_restored;
mod live;
#[cfg(feature = "up")]
mod long;
#[cfg(feature = "up")]
mod long_homes;
#[cfg(feature = "up")]
mod looked;
#[cfg(feature = "up")]
mod lost_logs;
#[cfg(feature = "up")]
mod lying;
#[cfg(feature = "up")]
mod moved_seals;
#[cfg(feature = "up")]
mod opened;
#[cfg(feature = "up")]
mod outliving;
#[cfg(feature = "up")]
mod own_page;
#[cfg(feature = "up")]
mod page;
#[cfg(feature = "up")]
mod phone;
#[cfg(feature = "up")]
mod piped;
#[cfg(feature = "up")]
mod place;
mod plans;
#[cfg(feature = "up")]
mod prompts;
#[cfg(feature = "up")]
mod pushes;
#[cfg(feature = "up")]
mod removed;
#[cfg(feature = "up")]
mod replaced;
#[cfg(feature = "up")]
mod rest;
#[cfg(feature = "up")]
mod restored;
#[cfg(feature = "up")]
mod runs;
#[cfg(feature = "up")]
mod screen;
#[cfg(feature = "up")]
mod scripted;
#[cfg(feature = "up")]
mod served;
#[cfg(feature = "up")]
mod servers;
#[cfg(feature = "up")]
mod service;
#[cfg(feature = "up")]
mod session_start;
#[cfg(feature = "up")]
mod session_tasks;
#[cfg(feature = "up")]
mod sessions;
#[cfg(feature = "up")]
mod signed_runs;
mod signed_tasks;
#[cfg(feature = "up")]
mod talking;
#[cfg(feature = "up")]
mod talking_here;
#[cfg(feature = "up")]
mod ten_lines;
#[cfg(feature = "up")]
mod terminal;
#[cfg(feature = "up")]
mod terminals;
#[cfg(feature = "up")]
mod titles;
#[cfg(feature = "up")]
mod together;
#[cfg(feature = "up")]
mod tunnels;
#[cfg(feature = "up")]
mod verified_page;
