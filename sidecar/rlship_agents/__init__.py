"""Writers outside the job: they look at servers and machines and log what they find, like any worker."""
