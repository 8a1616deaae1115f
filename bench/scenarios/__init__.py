"""What is measured of every frontend: points of load, and how one of them becomes a sample."""
