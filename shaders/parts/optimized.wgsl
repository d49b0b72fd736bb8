// From here on to `fallback`: what only the optimized entry point uses (`kernels/ir/fallback.py`).
//#if FALLBACK
// <optimized>
//#endif
