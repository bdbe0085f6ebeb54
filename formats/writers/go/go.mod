module rlship

go 1.23
