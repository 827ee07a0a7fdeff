"""The networks: encoder f, heads g_theta, h_theta and g, prototypes C, target xi."""
