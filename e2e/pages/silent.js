// A worker's script that says nothing.
onmessage = () => {};
