from platform_sdk.cli import main

main()
