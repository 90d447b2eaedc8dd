"""Where memory comes from. One module a format; `discover` finds the files, `read` turns one into documents."""
