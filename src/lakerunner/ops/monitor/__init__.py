"""The monitor: one look at the deployment every few seconds, exported, compared with objectives, and alerted on."""
