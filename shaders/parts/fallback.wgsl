// From here on to `fallback_end`: what only the fallback entry point uses, where FALLBACK.
//#if FALLBACK
// </optimized>
//
// <fallback>
