//! Rules of the repository as tests, so that no reviewer has to remember them. Each file holds one kind of rule.

#![cfg(test)]

mod card;
mod circles;
mod dependencies;
mod documents;
mod files;
mod layers;
mod published;
mod repository;
mod words;
