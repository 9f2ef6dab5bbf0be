// A kernel that does nothing. The build names it after the tree that the
// library was built from, and kernel_fingerprint.cpp looks it up.
#ifdef MLX_OVERLAY_FINGERPRINT
[[kernel]] void MLX_OVERLAY_FINGERPRINT() {}
#endif
