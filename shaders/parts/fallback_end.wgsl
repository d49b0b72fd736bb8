// Ends what `fallback` began.
// </fallback>
//#endif
