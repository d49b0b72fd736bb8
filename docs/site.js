// Wide tables scroll: by keyboard, too. The theme wraps them after the page has loaded.
const reachable = () => {
  for (const table of document.querySelectorAll('.md-typeset__scrollwrap:not([tabindex])')) table.tabIndex = 0;
};
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
reachable();
