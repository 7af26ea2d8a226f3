//! What a worker and the application share of one connection.
