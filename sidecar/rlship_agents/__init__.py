"""Writers that are no part of the job: they look at servers and machines and log what they see, as any worker does."""
