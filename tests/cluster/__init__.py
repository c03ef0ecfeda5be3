"""The deployment of docs/deploy.md on this machine, from real servers on loopback: started, loaded, broken, healed."""
